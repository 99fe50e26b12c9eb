// The rules of accelegrad in the plane: a port of accelegrad/rules for two variables, to be read
// beside it. tests/lab/test_playground.py pins it to Python's iterates. It is for looking at:
// bounds here do not allow for rounding, as the package's do.
"use strict";

const Rules = (() => {
  // -- vectors --------------------------------------------------------------------------------
  const add = (a, b) => [a[0] + b[0], a[1] + b[1]];
  const sub = (a, b) => [a[0] - b[0], a[1] - b[1]];
  const times = (s, a) => [s * a[0], s * a[1]];
  const dot = (a, b) => a[0] * b[0] + a[1] * b[1];
  const norm = (a) => Math.sqrt(dot(a, a));
  const distance = (a, b) => norm(sub(a, b));

  // -- functions: value and (sub)gradient -----------------------------------------------------
  const TURN = [Math.cos(0.5), Math.sin(0.5)]; // the axes of the narrow valley
  const FUNCTIONS = {
    smooth: {
      label: "Smooth: log-sum-exp",
      minimum: 1.5 * Math.LN2 - 0.1, // at (-ln(2)/2, 0)
      start: [2.2, 1.4], diameter: 6, noise: 0,
      at(p) {
        const slopes = [[1, 3], [1, -3], [-1, 0]], heights = slopes.map((a) => dot(a, p) - 0.1);
        const highest = Math.max(...heights), parts = heights.map((h) => Math.exp(h - highest));
        const total = parts.reduce((sum, e) => sum + e, 0);
        const gradient = combined(slopes, parts.map((e) => e / total));
        return { value: highest + Math.log(total), gradient };
      },
    },
    kinked: {
      label: "Kinked: absolute values",
      minimum: 0, start: [-1.7, 1.6], diameter: 8, noise: 0,
      at(p) {
        const first = p[0] - 1, second = p[1] - p[0] / 2;
        const sign = 3 * Math.sign(second);
        const gradient = [Math.sign(first) - sign / 2, sign];
        return { value: Math.abs(first) + 3 * Math.abs(second), gradient };
      },
    },
    narrow: {
      label: "Ill-conditioned: a valley",
      minimum: 0, start: [-2, 1.5], diameter: 8, noise: 0,
      at(p) {
        const q = sub(p, [1, -0.5]);
        const along = dot(TURN, q), across = TURN[0] * q[1] - TURN[1] * q[0];
        const gradient = add(times(along, TURN), times(100 * across, [-TURN[1], TURN[0]]));
        return { value: (along * along + 100 * across * across) / 2, gradient };
      },
    },
    mixed: {
      label: "Both: bowl with a kink",
      minimum: 0.25, start: [-1.8, -1.6], diameter: 8, noise: 0,
      at(p) {
        const q = sub(p, [1, 0]), kink = 2 * Math.sign(p[0] - p[1]);
        const value = dot(q, q) / 2 + 2 * Math.abs(p[0] - p[1]);
        return { value, gradient: [q[0] + kink, q[1] - kink] };
      },
    },
    noisy: {
      label: "Noisy: a bowl",
      minimum: 0, start: [-1.8, 1.6], diameter: 6, noise: 2,
      at(p) {
        const q = sub(p, [1, -0.5]);
        return { value: (q[0] * q[0] + 4 * q[1] * q[1]) / 2, gradient: [q[0], 4 * q[1]] };
      },
    },
  };

  // -- noise: the same on every machine -------------------------------------------------------
  function uniform(seed) { // mulberry32
    let state = seed >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  }
  function gaussians(seed) { // two independent normal numbers a call, by Box and Muller
    const next = uniform(seed);
    return () => {
      const length = Math.sqrt(-2 * Math.log(1 - next())), angle = 2 * Math.PI * next();
      return [length * Math.cos(angle), length * Math.sin(angle)];
    };
  }

  // -- weights and steps (rules/accelegrad.py) ------------------------------------------------
  const weight = (t) => (t < 3 ? 1 : (t + 1) / 4); // alpha_t
  const adaptive = (scale, total) => (total > 0 ? scale / Math.sqrt(total) : 0);
  const coupled = (t, z, y) => add(z, times(1 - 1 / weight(t), sub(y, z)));
  function inBall(point, center, radius) {
    const offset = sub(point, center), length = norm(offset);
    return length > radius ? add(center, times(radius / length, offset)) : point;
  }
  const smallestRadius = (x0) => 1e-6 * (1 + norm(x0));

  // -- AcceleGrad (rules/accelegrad.py) -------------------------------------------------------
  function acceleGrad({ x0, diameter, gradientBound }) {
    let t = 0, x = x0, y = x0, z = x0, squares = 0, sum = [0, 0], total = 0;
    return {
      radius: () => diameter / 2,
      step(oracle) {
        const at = oracle(x), g = at.gradient, alpha = weight(t);
        squares += alpha * alpha * dot(g, g);
        const eta = adaptive(2 * diameter, gradientBound * gradientBound + squares);
        z = inBall(sub(z, times(alpha * eta, g)), x0, diameter / 2);
        y = sub(x, times(eta, g));
        sum = add(sum, times(alpha, y));
        total += alpha;
        t += 1;
        x = coupled(t, z, y);
        return { at, x: at.point, y, z, average: times(1 / total, sum), weight: alpha };
      },
    };
  }

  // -- AdaGrad (rules/adagrad.py) -------------------------------------------------------------
  function adaGrad({ x0, diameter }) {
    let x = x0, squares = 0, sum = [0, 0], t = 0;
    return {
      radius: () => diameter / 2,
      step(oracle) {
        const at = oracle(x), g = at.gradient;
        squares += dot(g, g);
        sum = add(sum, x);
        t += 1;
        x = inBall(sub(x, times(adaptive(diameter, 2 * squares), g)), x0, diameter / 2);
        return { at, x: at.point, y: x, z: x, average: times(1 / t, sum), weight: 1 };
      },
    };
  }

  // -- AcceleGrad with an automatic D (rules/distance_free.py) ---------------------------------
  function distanceFree({ x0, exact }) {
    let t = 0, x = x0, y = x0, z = x0, squares = 0, sum = [0, 0], total = 0;
    let r = smallestRadius(x0), evidence = 0, gradients = [0, 0], known = null;
    return {
      radius: () => r,
      step(oracle) {
        if (t === 0 && exact) {
          known = oracle(x0);
          r = probed(known, oracle) || r;
        }
        const at = t === 0 && known ? known : oracle(x), g = at.gradient, alpha = weight(t);
        squares += alpha * alpha * dot(g, g);
        const eta = adaptive(2 * r, squares);
        z = inBall(sub(z, times(alpha * eta, g)), x0, 3 * r);
        y = sub(x, times(eta, g));
        sum = add(sum, times(alpha * r, y));
        total += alpha * r;
        evidence += alpha * r * r * dot(g, sub(x0, x));
        gradients = add(gradients, times(alpha * r * r, g));
        r = Math.max(r, 2 * adaptive(evidence, dot(gradients, gradients)));
        t += 1;
        x = coupled(t, z, y);
        return { at, x: at.point, y, z, average: times(1 / total, sum), weight: alpha };
      },
    };
  }

  // The search for the first radius (rules/distance.py)
  function probed(start, oracle) {
    const first = smallestRadius(start.point);
    const found = fallAlong(start.gradient, start, oracle, first);
    return found > first ? found : Math.max(found, fallFromKink(start, oracle, first));
  }
  function fallAlong(uphill, start, oracle, first) {
    const length = norm(uphill);
    if (!(length > 0)) return 0;
    const direction = times(1 / length, uphill), slope = dot(start.gradient, direction);
    if (!(slope > 0)) return 0;
    const pointAt = (reach) => sub(start.point, times(reach, direction));
    let fallsTo = 0, risesAt = Infinity, least = start.value, calls = 0;
    const attempt = (reach) => {
      calls += 1;
      const at = oracle(pointAt(reach));
      if (at.value < least - 0.01 * (start.value - least)) [fallsTo, least] = [reach, at.value];
      else risesAt = reach;
      return at;
    };
    const rounding = 1e-12 * (Math.abs(start.value) / slope + norm(start.point));
    let reach = first, trial = attempt(reach);
    while (fallsTo === 0 && reach > rounding && calls < 40) trial = attempt((reach *= 1e-3));
    if (fallsTo === 0) return 0;
    const fall = slope - dot(trial.gradient, direction); // a parabola with these slopes
    const guess = fall > 0 ? (slope * fallsTo) / fall : 0;
    reach = Math.min(Math.max(guess, 10 * fallsTo), 1e13 * fallsTo);
    if (risesAt < Infinity) reach = Math.min(reach, Math.sqrt(fallsTo * risesAt));
    while (calls < 40) {
      trial = attempt(reach);
      if (risesAt <= 10.01 * fallsTo) break;
      if (risesAt < Infinity) reach = Math.sqrt(fallsTo * risesAt);
      else if (dot(trial.gradient, direction) <= 0) break;
      else reach = 10 * fallsTo;
    }
    return distance(pointAt(fallsTo), start.point);
  }
  function fallFromKink(start, oracle, first) {
    const slopes = [start.gradient];
    let uphill = start.gradient;
    for (let i = 0; i < 100; i++) {
      const square = dot(uphill, uphill);
      if (!(square > 1e-12 * Math.max(...slopes.map((g) => dot(g, g))))) return 0;
      const length = Math.sqrt(square);
      const trial = oracle(sub(start.point, times(first / length, uphill)));
      if (trial.value < start.value - 0.1 * first * length) {
        return fallAlong(uphill, start, oracle, first);
      }
      slopes.push(trial.gradient);
      uphill = combined(slopes, shortest(slopes, slopes.map(() => 0), 1));
    }
    return 0;
  }

  // -- the best weights of cuts (bundle/cut_programme.py) ----------------------------------------
  // Minimise step/2 ||sum w_i g_i||^2 + sum w_i e_i over weights that add up to 1. In the plane at
  // most three of them are needed, so all sets of three are tried.
  function shortest(slopes, errors, step) {
    const n = slopes.length;
    let least = Infinity, best = null;
    const consider = (which, shares) => {
      let g = [0, 0], e = 0;
      which.forEach((i, k) => { g = add(g, times(shares[k], slopes[i])); e += shares[k] * errors[i]; });
      const value = (step / 2) * dot(g, g) + e;
      if (value < least) [least, best] = [value, { which, shares }];
    };
    for (let i = 0; i < n; i++) {
      consider([i], [1]);
      for (let j = i + 1; j < n; j++) {
        const d = sub(slopes[j], slopes[i]), square = dot(d, d), e = errors[j] - errors[i];
        const share = -(step * dot(slopes[i], d) + e) / (step * square);
        if (square > 0 && share > 0 && share < 1) consider([i, j], [1 - share, share]);
        for (let k = j + 1; k < n; k++) {
          const c = sub(slopes[k], slopes[i]), f = errors[k] - errors[i];
          const det = d[0] * c[1] - d[1] * c[0];
          if (det === 0) continue;
          // the sum's slope there, less that of cut i
          const v = sub([-(c[1] * e - d[1] * f) / (det * step), -(d[0] * f - c[0] * e) / (det * step)], slopes[i]);
          const p = (v[0] * c[1] - v[1] * c[0]) / det, q = (d[0] * v[1] - d[1] * v[0]) / det;
          if (p > 0 && q > 0 && p + q < 1) consider([i, j, k], [1 - p - q, p, q]);
        }
      }
    }
    const weights = slopes.map(() => 0);
    best.which.forEach((i, k) => { weights[i] = best.shares[k]; });
    return weights;
  }
  // To what DAQP minimises, the package adds the square of the model's value, divided by 20 units
  // (geometry/nearest_point.py). The solution is that without it for a shorter step: by the share
  // promise / (10 units). Each round finds at least a digit more of that step.
  function shortestAtOnce(slopes, errors, step) {
    const first = slopes[errors.indexOf(Math.min(...errors))];
    let unit = step * dot(first, first), found = { weights: null, step };
    for (let i = 0; i < 3 && unit > 0; i++) {
      let length = step, before = 0, weights, promise;
      for (let round = 0; round < 20 && Math.abs(length - before) > 1e-15 * step; round++) {
        weights = shortest(slopes, errors, length);
        const g = combined(slopes, weights);
        promise = weights.reduce((sum, w, k) => sum + w * errors[k], 0) + length * dot(g, g);
        [before, length] = [length, step * (1 - promise / (10 * unit))];
      }
      found = { weights, step: length };
      if (promise >= 1e-9 * unit) break; // DAQP finds twelve digits of a unit; three are enough
      unit = 10 * promise;
    }
    return found.weights ? found : { weights: shortest(slopes, errors, step), step };
  }
  const combined = (slopes, weights) =>
    slopes.reduce((sum, g, i) => add(sum, times(weights[i], g)), [0, 0]);

  // -- the bundle method (bundle/bundle.py) -----------------------------------------------------
  const MOST_CUTS = 22; // the dimension and 20 more
  const UNIT = Number.EPSILON;
  function bundle({ x0 }) {
    let cuts = [], added = 0; // {slope, level: its value at x0, size: of its terms, weight, added}
    let center = x0, value = Infinity, gradient = [0, 0], t = 1, gap = Infinity;
    let radius = smallestRadius(x0), iteration = 0, calls = 0;
    let pairs = [], curvature = [], flattest = 0, misses = 0, recent = [], search = null;
    const insurance = distanceFree({ x0, exact: true });
    let insuredValue = Infinity, insured = 0, last = { z: x0, y: x0 };

    const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
    const smooth = () => {
      if (recent.filter(Boolean).length > 2) return false;
      return curvature.length < 5 || 10 * median(curvature) >= flattest;
    };
    const note = (missed) => { // how many misses it counts as
      recent = [...recent, ...Array(Math.max(missed, 1)).fill(missed > 0)].slice(-10);
      misses = missed ? misses + missed : 0;
    };
    const cutAt = (at) => {
      const slope = at.gradient, offset = sub(at.point, x0), newest = cuts[cuts.length - 1];
      const size = Math.abs(at.value) + norm(slope) * norm(offset);
      const level = at.value - dot(slope, offset) - UNIT * size; // lowered by its rounding
      if (newest && Math.abs(newest.level - level) <= 8 * UNIT * Math.max(newest.size, size)
        && newest.slope[0] === slope[0] && newest.slope[1] === slope[1]) return; // tells nothing
      if (cuts.length === MOST_CUTS) makeRoom();
      cuts.push({ slope, level, size, weight: 0, added: (added += 1) });
    };
    const makeRoom = () => { // keep cuts with weight, then the newest, and the sum of all
      const ranked = [...cuts].sort((a, b) => b.weight - a.weight || b.added - a.added);
      const kept = ranked.slice(0, Math.floor(0.8 * MOST_CUTS) - 1).sort((a, b) => a.added - b.added);
      const total = cuts.reduce((sum, cut) => sum + cut.weight, 0);
      if (total > 0) {
        const slope = combined(cuts.map((c) => c.slope), cuts.map((c) => c.weight / total));
        const mean = (what) => cuts.reduce((sum, cut) => sum + (cut.weight / total) * cut[what], 0);
        kept.push({ slope, level: mean("level"), size: mean("size"), weight: 0, added: (added += 1) });
      }
      cuts = kept;
    };
    const centre = (at, paired) => {
      const step = sub(at.point, center), change = sub(at.gradient, gradient);
      if (paired) {
        const growth = dot(step, change), least = 1e-10 * norm(step) * norm(change);
        if (growth > least && least > 0) pairs = [...pairs, [step, change]].slice(-20);
        if (dot(change, change) > 0 && growth > 0) {
          curvature = [...curvature, growth / dot(change, change)].slice(-5);
          if (curvature.length === 5) flattest = Math.max(flattest, median(curvature));
        }
      }
      [center, value, gradient] = [at.point, at.value, at.gradient];
    };

    // Steps of L-BFGS, with a line search of a few trials (bundle/quasi_newton.py)
    const direction = () => {
      let q = gradient;
      const shares = [];
      for (const [s, y] of [...pairs].reverse()) {
        shares.unshift(dot(s, q) / dot(s, y));
        q = sub(q, times(shares[0], y));
      }
      if (pairs.length) {
        const [s, y] = pairs[pairs.length - 1];
        q = times(dot(s, y) / dot(y, y), q);
      }
      pairs.forEach(([s, y], i) => { q = add(q, times(shares[i] - dot(y, q) / dot(s, y), s)); });
      return times(-1, q);
    };
    const trySearch = (oracle) => {
      if (!search) {
        let p = direction();
        if (!(dot(gradient, p) < 0)) p = times(-1, gradient);
        const start = { at: 0, value, slope: dot(gradient, p) };
        search = { p, trial: pairs.length ? 1 : t, trials: 0, start, low: start, high: null, lowest: null };
      }
      const { p, start } = search, at = oracle(add(center, times(search.trial, p)));
      const end = { at: search.trial, value: at.value, slope: dot(at.gradient, p) };
      const fell = end.value <= start.value + 1e-4 * end.at * start.slope
        || (end.value <= start.value && end.slope <= (2e-4 - 1) * start.slope);
      if (fell && end.slope >= 0.9 * start.slope) {
        search = null;
        centre(at, true);
        note(0);
        return at;
      }
      if (!fell) {
        const ahead = end.value - (start.value + end.at * start.slope);
        const back = start.value - (end.value - end.at * end.slope);
        note(pairs.length > 0 && ahead - back > 0.4 * (ahead + back) ? 3 : 1);
      }
      search = followingSearch(search, end, fell, at);
      if (search.trials >= 4 || !smooth()) {
        const { lowest, high, low } = search, length = low.at * norm(p);
        search = null;
        if (lowest) centre(lowest, true);
        if (lowest && !high) [t, pairs] = [norm(gradient) > 0 ? length / norm(gradient) : 1, []];
      }
      return at;
    };

    // Steps of the model: the highest cut, near the centre
    const reach = (length) => 2 * Math.max(distance(center, x0), length);
    const isFar = (point) => distance(point, center) >= reach(0);
    const modelTrial = (t) => {
      const slopes = cuts.map((cut) => cut.slope), away = sub(center, x0);
      const apart = cuts.map((cut) => value - cut.level - dot(cut.slope, away));
      const errors = apart.map((each) => Math.max(0, each));
      const { weights, step } = shortestAtOnce(slopes, errors, t), slope = combined(slopes, weights);
      cuts.forEach((cut, i) => { cut.weight = weights[i]; });
      const mean = (numbers) => weights.reduce((sum, w, i) => sum + w * numbers[i], 0);
      const error = mean(errors), length = norm(slope), square = step * dot(slope, slope);
      const left = mean(apart) + square; // rounding may have lowered the value at the centre
      return {
        point: sub(center, times(step, slope)), promise: left <= 0 ? left : error + square,
        gap: error + reach(t * length) * length,
      };
    };
    const followModel = (oracle) => {
      let step = t, trial = null;
      const resolved = () => trial.promise > 1e-13 * Math.abs(value);
      for (let i = 0; i < 4; i++) {
        trial = modelTrial(step);
        if (resolved() || isFar(trial.point)) break;
        if (trial.gap <= 1e-13 * Math.abs(value)) break;
        step *= 10;
      }
      const news = trial.gap < gap;
      gap = trial.gap;
      if (!resolved() && !news) {
        t = step;
        return insure(oracle);
      }
      const known = added, at = oracle(trial.point), { promise } = trial, fall = value - at.value;
      const lowest = promise > fall ? (step * promise) / (2 * (promise - fall)) : Infinity;
      if (fall >= 0.1 * promise) {
        centre(at, true);
        note(0);
        const allFell = !recent.slice(-3).some(Boolean);
        t = Math.min(10 * step, Math.max(lowest, allFell ? 2 * step : step));
        return at;
      }
      note(1);
      t = step;
      if (added === known && !isFar(trial.point)) { // known cut: its promise is rounding
        t = 10 * step;
        return at;
      }
      const error = value - at.value - dot(at.gradient, sub(center, at.point));
      if (error > promise && misses >= 10) {
        misses = 0;
        t = Math.max(0.3 * step, Math.min(lowest, step), Math.min(step, flattest));
        if (curvature.length === 5) flattest = median(curvature); // seen from far away: no longer
      }
      return at;
    };

    // Steps of AcceleGrad, which insure the others
    const owes = () => {
      if (gap === Infinity) return false;
      const behind = insuredValue - value + gap;
      return (behind * 2.2 * (10 + insured)) / calls < gap;
    };
    const insure = (oracle) => {
      const found = [];
      last = insurance.step((point) => (found.push(oracle(point)), found[found.length - 1]));
      insured += found.length;
      const best = found.reduce((a, b) => (b.value < a.value ? b : a));
      insuredValue = Math.min(insuredValue, best.value);
      if (best.value < value) centre(best, false);
      return found[found.length - 1];
    };

    return {
      radius: () => radius,
      cuts: () => cuts,
      step(oracle) {
        let made = 0;
        const recorder = (point) => {
          made += 1;
          const at = oracle(point);
          cutAt(at);
          return at;
        };
        let at;
        if (iteration === 0) {
          at = recorder(x0);
          t = Math.max(1, norm(x0)) / (norm(at.gradient) || 1);
          insuredValue = at.value;
          centre(at, false);
        } else if (search || smooth()) at = trySearch(recorder);
        else if (owes()) at = insure(recorder);
        else at = followModel(recorder);
        calls += made;
        radius = Math.max(radius, distance(center, x0));
        if (iteration === 1) radius = Math.max(radius, distance(at.point, x0));
        iteration += 1;
        return { at, x: at.point, y: center, z: last.z, average: center, weight: 0 };
      },
    };
  }
  function followingSearch(search, end, fell, at) {
    const { low, high } = search, trials = search.trials + 1;
    if (fell && !high) { // go on, to where the slope would be zero
      const flatter = end.slope - low.slope;
      const onward = flatter > 0 ? ((end.at - low.at) * -end.slope) / flatter : Infinity;
      const trial = Math.min(Math.max(end.at + onward, 2 * end.at), 10 * end.at);
      return { ...search, low: end, lowest: at, trial, trials };
    }
    const following = fell ? { ...search, low: end, lowest: at } : { ...search, high: end };
    return { ...following, trial: lowestOfCubic(following.low, following.high), trials };
  }
  function lowestOfCubic(low, high) {
    const width = high.at - low.at;
    const middle = (3 * (low.value - high.value)) / width + low.slope + high.slope;
    const root = Math.sqrt(Math.max(middle * middle - low.slope * high.slope, 0));
    const divisor = high.slope - low.slope + 2 * root;
    const share = divisor !== 0 ? (high.slope + root - middle) / divisor : 0.5;
    const trial = high.at - width * share;
    if (!Number.isFinite(trial)) return low.at + width / 2;
    return Math.min(Math.max(trial, low.at + 0.1 * width), high.at - 0.1 * width);
  }

  // -- the certificate (proofs/cuts.py) ----------------------------------------------------------
  // Every cut, and every average of cuts, minimised over the ball around x0, is a lower bound.
  const NEWEST = 12; // cuts among which the best average is looked for
  function certificate(x0) {
    const cuts = [];
    let total = 0, level = 0, slope = [0, 0], highest = -Infinity, last = 0;
    const over = (cut, radius) => cut.level - radius * norm(cut.slope);
    return {
      add(at, share) {
        const cut = { slope: at.gradient, level: at.value - dot(at.gradient, sub(at.point, x0)) };
        cuts.push(cut);
        total += share;
        level += share * cut.level;
        slope = add(slope, times(share, cut.slope));
      },
      bound(radius, kept) { // `kept`: the cuts of a rule that keeps some
        const mean = total > 0 ? [{ level: level / total, slope: times(1 / total, slope) }] : [];
        const candidates = [...cuts, ...mean];
        const plain = Math.max(...candidates.map((cut) => over(cut, radius)));
        const found = Math.max(plain, bestAverage(kept || candidates.slice(-NEWEST), radius, over));
        highest = radius === last ? Math.max(highest, found) : found; // of the same ball all hold
        last = radius;
        return highest;
      },
    };
  }
  // The best average of the newest cuts: the step for which the model's lowest point is at the
  // ball's boundary. The bounds of all other steps hold too.
  function bestAverage(cuts, radius, over) {
    const slopes = cuts.map((cut) => cut.slope);
    const highest = Math.max(...cuts.map((cut) => cut.level));
    const errors = cuts.map((cut) => highest - cut.level);
    let low = Math.log(1e-9 * radius), high = Math.log(1e9 * radius), found = -Infinity;
    for (let i = 0; i < 24; i++) {
      const middle = (low + high) / 2, step = Math.exp(middle);
      const weights = shortest(slopes, errors, step), slope = combined(slopes, weights);
      const level = weights.reduce((sum, w, k) => sum + w * cuts[k].level, 0);
      found = Math.max(found, over({ level, slope }, radius));
      if (step * norm(slope) < radius) low = middle;
      else high = middle;
    }
    return found;
  }

  // -- a run -------------------------------------------------------------------------------------
  const METHODS = {
    accelegrad: { label: "AcceleGrad", make: acceleGrad, reach: 1, needsD: true },
    adagrad: { label: "AdaGrad", make: adaGrad, reach: 1, needsD: true },
    automatic: { label: "AcceleGrad, automatic D", make: distanceFree, reach: 3, needsD: false },
    bundle: { label: "Bundle (the default)", make: bundle, reach: 3, needsD: false, exactOnly: true },
  };
  const PROVED = 1e-8; // a run ends when its gap is proved to be no larger, relatively
  // Returns a frame a step: the points, the value at the best point (of exact values) or at the
  // average (under noise), the lower bound (none under noise) and the radius for which it holds.
  function run({ fun, method, x0, diameter = 6, gradientBound = 0, noise = 0, seed = 1, steps = 100 }) {
    const f = FUNCTIONS[fun], exact = !(noise > 0), kind = METHODS[method];
    if (kind.exactOnly && !exact) throw new Error(`${kind.label} needs exact values: set the noise to 0.`);
    const rule = kind.make({ x0, diameter, gradientBound, exact });
    const draw = gaussians(seed), proof = certificate(x0), frames = [];
    let best = null, calls = 0, fresh = [];
    const oracle = (point) => {
      const at = { point, ...f.at(point) };
      calls += 1;
      if (!exact) at.gradient = add(at.gradient, times(noise, draw()));
      if (best === null || at.value < best.value) best = at;
      fresh.push(at);
      return at;
    };
    for (let i = 0; i < steps; i++) {
      fresh = [];
      const step = rule.step(oracle);
      if (exact) fresh.forEach((at) => proof.add(at, at === step.at ? step.weight : 0));
      const radius = kind.reach * rule.radius();
      const returned = exact ? best.point : step.average;
      const lower = exact ? proof.bound(radius, rule.cuts?.()) : null;
      frames.push({ ...step, calls, radius, returned, value: f.at(returned).value, lower });
      if (exact && best.value - lower <= PROVED * Math.max(1, Math.abs(best.value))) break;
    }
    return frames;
  }

  return { FUNCTIONS, METHODS, run, uniform, gaussians };
})();
if (typeof module !== "undefined") module.exports = Rules;
