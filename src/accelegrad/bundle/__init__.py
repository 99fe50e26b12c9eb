"""The bundle method for exact values: cuts, their quadratic programme, quasi-Newton steps."""
