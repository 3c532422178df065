// Command static is the only file of the image fumehood-test/static. It prints a line and exits with code 0.
package main

import "fmt"

func main() { fmt.Println("static: ok") }
