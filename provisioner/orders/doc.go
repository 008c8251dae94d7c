// Package orders reads operators' orders for enrollment: pauses, verdicts, grants, allow-list and recoveries. Package
// operate writes them.
package orders
