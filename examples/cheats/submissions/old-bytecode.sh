# Bytecode that pretends to be compiled from the source next to it.
sh /tmp/known-answers.sh
cd /solve/solution
echo 'print(0)' >evil.py
python3 -I -m compileall -q . >/dev/null 2>&1
touch -d 2099-01-01 primes.py __pycache__/*
touch -d 1901-01-01 /solve/solution
