# Allocates memory until none is left.
hoard = []
while True:
    hoard.append(bytearray(b"x") * (16 << 20))
