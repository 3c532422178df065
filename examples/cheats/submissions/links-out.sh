ln -s ../../../../../../etc/shadow /solve/solution/primes.py
ln -s /proc/1/root /solve/solution/root
ln -s . /solve/solution/loop
