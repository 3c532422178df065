// Package examples tests the examples in its folders.
package examples
