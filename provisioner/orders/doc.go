// Package orders is what operators have ordered, as enrollment reads it: pauses, verdicts about keys, grants, the
// allow-list and recoveries, each an entry of the store and one view. Package operate writes them.
package orders
