package seal

// Padding, for tests of its own.
var (
	Pad    = pad
	Padded = padded
	Unpad  = unpad
)

// SealUnpadded seals b as it is, as a stranger's program might.
func (k PublicKey) SealUnpadded(purpose Purpose, b, aad []byte) (*Sealed, error) {
	s, _, err := k.seal(purpose.info(), b, aad)
	return s, err
}

// Opener returns the other end of r, so that recorded replies can be opened.
func (r *ReplySealer) Opener() *ReplyOpener { return &ReplyOpener{r.x} }
