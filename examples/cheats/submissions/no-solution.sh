rmdir /work/solution
