package seal

import "time"

// Padding, for tests of its own.
var (
	Pad    = pad
	Padded = padded
	Unpad  = unpad
)

// CacheAge bounds for how long an [Opener] remembers a session.
const CacheAge = cacheAge

// SealUnpadded seals b as it is, as a stranger's program might.
func (s *Session) SealUnpadded(purpose Purpose, b []byte) (*Sealed, error) {
	sealed, _, err := s.seal(purpose, append(make([]byte, saltBytes), b...))
	return sealed, err
}

// Opener returns the other end of r, so that recorded replies can be opened.
func (r *ReplySealer) Opener() *ReplyOpener { return &ReplyOpener{r.x} }

// Remembered returns how many sessions o remembers.
func (o *Opener) Remembered() int { return o.cache().len() }

// Remembers reports whether o remembers the session of s, and does not count as
// using it.
func (o *Opener) Remembers(s *Sealed) bool {
	c, id := o.cache(), newSessionID(s.Key, s.Encapsulated)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, young := c.young[id]
	_, old := c.old[id]
	return young || old
}

// Remember has o remember by this clock and bound from now on, and nothing from
// before.
func (o *Opener) Remember(now func() time.Time, entries int) {
	c := newCache(now, entries)
	o.cache = func() *cache { return c }
}
