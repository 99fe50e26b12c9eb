"""What is wrong in a command line or a file is said before anything is computed."""

import re
import shlex

import numpy as np
import pytest

from accelegrad.cli.main import main
from accelegrad.models.losses import LOSSES
from accelegrad_lab.compare.compare import METHODS
from accelegrad_lab.paper.reproduce import EXPERIMENTS
from accelegrad_lab.peers import COMPARED
from accelegrad_lab.report import stills

#: Files of rows, by name: two classes, what is no number, three classes, and a single row.
ROWS = [f"{x:.3f} 2:{y:.3f}" for x, y in np.random.default_rng(0).standard_normal((30, 2))]
FILES = {
    "good": [f"{i % 2} 1:{row}" for i, row in enumerate(ROWS)],
    "bad": ["1 1:2", "-1 1:x"],
    "three": [f"{i % 3} 1:{row}" for i, row in enumerate(ROWS)],
    "one": ["1 1:2"],
}
WRONG = [
    ("bench --only hing", "did you mean 'hinge'"),
    ("bench --quick --solvers LogisticRegresion", "did you mean 'LogisticRegression'"),
    ("bench --time-limit 0", "time_limit must be a finite number > 0"),
    ("bench --everyday --minima", "--minima needs --functions"),
    ("bench --everyday --functions", "--functions does not go with --everyday"),
    ("bench --functions --only lasoo", "did you mean 'lasso'"),
    ("bench --functions --solvers l-bfgs-b", "did you mean 'lbfgs-b'"),
    ("compare bad", "bad, line 2: could not convert string to float"),
    ("compare nowhere", "nowhere: cannot be read"),
    ("compare three --loss hinge", r"three: y must hold two distinct labels.*'squared'"),
    ("compare one --loss squared", r"one: the file has 1 row, .* at least 2"),
    ("compare good --target y", "only tables with columns have one to choose"),
    ("compare good --loss hing", r"no loss 'hing': did you mean 'hinge'\?"),
    ("compare good --methods adagrd", r"no method 'adagrd': did you mean 'adagrad'\?"),
    ("compare good --methods ''", "no method is given"),
    ("compare good --peers libliner", r"no peer 'libliner': did you mean 'liblinear'\?"),
    ("compare good --loss hinge --peers saga", r"'saga' does not minimise .*'liblinear', 'sgd'"),
    ("compare good --peers liblinear --l2 0", "'liblinear' cannot be run here: it needs l2 > 0"),
    ("compare good --methods dual-ascent --l2 0 --loss squared", "l2"),
    ("compare good --l2 -1", "l2 must be"),
    ("compare good --epochs 0", "epochs must be"),
    ("compare good --seeds 0", "seeds must be"),
    ("compare good --batch-size 0", "batch_size must be"),
    ("compare good --diameter 0", "diameter must be"),
    ("compare good --quantile 1.5", "quantile must be"),
    ("reproduce --seeds 0", "seeds must be a whole number >= 1"),
    ("reproduce --jobs 0", "jobs must be a whole number >= 1"),
    ("reproduce determinstic", "did you mean 'deterministic'"),
    ("reproduce large-batch --data missing.svm", "missing.svm"),
    ("reproduce large-batch --data three", "accelegrad reproduce: .*two distinct labels"),
]


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of the files, with a report of two of them."""
    folder = tmp_path_factory.mktemp("commands")
    for name, lines in FILES.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(stills, "draw_still", lambda figure: {})
        given = ["--out", "out", "--epochs", "2", "--no-progress"]
        assert main(["compare", "good", *given]) == 0
        # What is wrong for one loss may be right for another.
        assert main(["compare", "three", "--loss", "squared", *given]) == 0
    return folder


@pytest.mark.parametrize(("line", "words"), WRONG)
def test_what_is_wrong_is_said(line, words, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    before = content(folder)
    assert main([*shlex.split(line), "--out", line.split()[0].replace("compare", "out")]) == 1
    assert re.search(words, capsys.readouterr().err)
    assert content(folder) == before


def test_usage(capsys):
    assert main(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in EXPERIMENTS)
    peers = {name for offered in COMPARED.values() for name in offered}
    for line, status, words in (
        ("reproduce --nonsense", 2, ["--nonsense"]),
        ("reproduce --help", 0, ["--quick"]),
        ("compare --help", 0, [*LOSSES, *METHODS, *peers, "sklearn", "--target"]),
    ):
        with pytest.raises(SystemExit) as stop:
            main(line.split())
        assert stop.value.code == status
        said = "".join(capsys.readouterr())
        assert [word for word in words if word not in said] == []
