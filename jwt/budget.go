package jwt

// A Budget pays for taking a token apart and checking its signature, up to 325 µs (RSA of 4096 bits, measured):
// forging tokens is free, and refusing them is not.
type Budget interface {
	// Charge takes the price of one check, or reports that it is not there.
	Charge() bool
	// Refund gives the price of one check back.
	Refund()
}
