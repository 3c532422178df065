# Prints 20 MB, to fill the memory or the disk of whoever keeps it all.
yes 'all work and no play makes jack a dull boy' | head -c 20000000
