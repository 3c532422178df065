# The test that the author of a solution may see: two answers.
import subprocess

for n, answer in {1: "2", 25: "97"}.items():
    ran = subprocess.run(["/usr/bin/python3", "-I", "/solve/solution/primes.py", str(n)], capture_output=True, text=True, timeout=5)
    assert ran.stdout.strip() == answer, f"prime {n} is not {ran.stdout[:100]!r}"
print("visible tests passed")
