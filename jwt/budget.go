package jwt

// A Budget pays for checking a token's signature, up to 325 µs (RSA of 4096 bits, measured).
type Budget interface {
	// Charge takes the price of one check; false: the budget is spent.
	Charge() bool
	// Refund returns the price of one check.
	Refund()
}
