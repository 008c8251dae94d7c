package seal

import "muster/internal/wire"

// Padding, for tests of its own.
var (
	Pad    = pad
	Padded = padded
	Unpad  = unpad
)

// SealUnpadded seals b as it is, as a stranger's program might.
func (s *Session) SealUnpadded(purpose Purpose, b []byte) (*wire.Envelope, error) {
	sealed, _, err := s.seal(purpose, append(make([]byte, saltBytes), b...))
	return sealed, err
}

// Opener returns the other end of r, so that recorded replies can be opened.
func (r *ReplySealer) Opener() *ReplyOpener { return &ReplyOpener{r.x} }

// Remembered returns how many sessions o remembers.
func (o *Opener) Remembered() int { return len(o.cache().secrets) }

// Forget has o remember nothing.
func (o *Opener) Forget() { clear(o.cache().secrets) }

// Fill has o remember n sessions.
func (o *Opener) Fill(n int) {
	for i := range n {
		o.cache().put(sessionID{byte(i), byte(i >> 8)}, make([]byte, secretBytes))
	}
}

// CacheEntries is how many sessions an [Opener] remembers.
const CacheEntries = cacheEntries
