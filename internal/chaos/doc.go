// Package chaos tests a fleet under faults. Real processes are killed, stopped, cut off, starved of disk and moved in
// time while nodes enroll. Afterwards a checker reads the provisioner's store and the nodes' disks.
//
// `go test` runs every fault at a small size, `make chaos` at full size with a table in docs/performance.md.
package chaos
