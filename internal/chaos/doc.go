// Package chaos holds one test: what is left of a fleet after the worst that
// happens to its machines. Real processes, built from this tree, are killed,
// stopped, cut off, starved of disk and moved in time from outside, while nodes
// enroll; afterwards a checker reads the provisioner's store and the nodes'
// disks, and nothing that the program says of itself.
//
// `go test` runs every fault at a small size, `make chaos` at full size, and
// writes the table of docs/performance.md. See run_test.go for what a run is,
// rows_test.go and the files beside it for the faults, check_test.go for what
// must hold after each.
package chaos
