package seal

import "muster/internal/wire"

var (
	Pad    = pad
	Padded = padded
	Unpad  = unpad
)

// SealUnpadded seals b without padding, as another program might.
func (s *Session) SealUnpadded(purpose Purpose, b []byte) (*wire.Envelope, error) {
	sealed, _ := s.seal(purpose, append(make([]byte, saltBytes), b...))
	return sealed, nil
}

// Opener returns the opener for replies of r.
func (r *ReplySealer) Opener() *ReplyOpener { return &ReplyOpener{r.x} }

func (o *Opener) Remembered() int { return o.cache().Len() }

func (o *Opener) Fill(n int) {
	for i := range n {
		o.cache().Put(sessionID{byte(i), byte(i >> 8)}, [secretBytes]byte{})
	}
}

const CacheEntries = cacheEntries
