package jwt

// A Budget limits how many signatures are checked for a sender; a check takes up to 325 µs (RSA of 4096 bits,
// measured).
type Budget interface {
	// Charge takes one check from the budget; false: it is spent.
	Charge() bool
	// Refund returns one check to the budget.
	Refund()
}
