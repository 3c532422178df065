# Runs a solution as nobody and prints how near its answers are. It fails at answers that it does not expect.
import json
import subprocess
import sys

scores, reasons = {}, []
for n, answer in {1: 2, 25: 97, 1000: 7919, 2500: 22307}.items():
    ran = subprocess.run(
        ["/usr/bin/python3", "-I", sys.argv[1], str(n)], capture_output=True, text=True, timeout=5, cwd="/", env={},
        user="nobody", group="nogroup", extra_groups=[],
    )
    if ran.returncode != 0:
        scores[f"prime {n}"] = 0
        continue
    scores[f"prime {n}"] = max(1 - abs(float(ran.stdout) - answer) / answer, 0)
    if scores[f"prime {n}"] != 1:
        reasons.append(f"prime {n} is not {ran.stdout}")
print(json.dumps({"score": min(scores.values()), "scores": scores, "reasons": reasons}))
