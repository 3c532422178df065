// Package scripts tests the scripts in its folder, and what every package must adhere to.
package scripts
