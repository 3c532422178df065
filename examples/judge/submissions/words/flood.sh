# Prints 20 MB, to fill the memory or the disk of a judge that keeps all output.
yes 'all work and no play makes jack a dull boy' | head -c 20000000
