rmdir /solve/solution
