package orders

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/jwt"
	"muster/provisioner/trust"
)

// PauseSchema is the version of a pause's JSON form.
const PauseSchema = 1

// A Pause says that no node enrolls, by an operator's order, until another order ends it. Of several about one site, the
// last one counts.
type Pause struct {
	Schema   int       `json:"schema"`
	Site     jwt.Site  `json:"site,omitempty"`     // only there; empty for the whole installation
	Renewals bool      `json:"renewals,omitempty"` // renewals are paused, too
	Resumed  bool      `json:"resumed,omitempty"`  // it is over
	At       time.Time `json:"at"`                 // UTC, to the second
	trust.Cause
}

// Check reports what about a pause cannot be. It is run on each that is read.
func (s *Pause) Check() error {
	if s.Schema != PauseSchema {
		return fmt.Errorf("pause: schema %d, want %d", s.Schema, PauseSchema)
	}
	if s.Site != "" {
		if _, err := jwt.ParseSite(string(s.Site)); err != nil {
			return fmt.Errorf("pause: %w", err)
		}
	}
	return nil
}

// Scope says what is paused, for people.
func (s *Pause) Scope() string {
	if s.Site == "" {
		return "everywhere"
	}
	return fmt.Sprintf("at site %q", s.Site)
}

// Because is why no node enrolls, for operators.
func (s *Pause) Because() error {
	why := s.Why
	if why != "" {
		why = ": " + why
	}
	what := ""
	if s.Renewals {
		what = ", renewals too,"
	}
	return fmt.Errorf("paused %s%s by %s since %s%s", s.Scope(), what, s.By, s.At.Format(time.RFC3339), why)
}

// LogKey is the key of the log's entries about the pause's site.
func (s *Pause) LogKey() string { return pauseKey(s.Site) }

// The keys of pauses: a site may hold what a subject of the store cannot.
const (
	pauseAll    = "all"
	pauseAtSite = "site-" // + the site in hex
)

func pauseKey(site jwt.Site) string {
	if site == "" {
		return pauseAll
	}
	return pauseAtSite + hex.EncodeToString([]byte(site))
}

// pausedBy returns the pause that an entry is, nil for one that is over. One that cannot be read
// pauses where it is about.
func pausedBy(key string, e trust.Entry[*Pause]) *Pause {
	switch {
	case e.Unread == nil && e.Value.Resumed:
		return nil
	case e.Unread == nil:
		return e.Value
	}
	site, _ := hex.DecodeString(strings.TrimPrefix(key, pauseAtSite))
	if key == pauseAll {
		site = nil
	}
	return &Pause{Schema: PauseSchema, Site: jwt.Site(site), At: e.At.UTC().Truncate(time.Second), Cause: trust.CauseUnread}
}

// Pauses are those in force, as this process knows them.
type Pauses struct{ trust.Log[*Pause] }

// Of returns the pause of exactly this site, "" for the installation's, or nil.
func (ps Pauses) Of(site jwt.Site) *Pause {
	key := pauseKey(site)
	e, found := ps.Get(key)
	if !found {
		return nil
	}
	return pausedBy(key, e)
}

// About returns a pause that covers one of the sites, or nil. A renewal is
// covered by those that say so.
func (ps Pauses) About(renewal bool, sites ...jwt.Site) *Pause {
	for _, site := range append([]jwt.Site{""}, sites...) {
		if s := ps.Of(site); s != nil && (s.Renewals || !renewal) {
			return s
		}
	}
	return nil
}

// List returns what is paused, the installation first and then sites by name.
func (ps Pauses) List() []*Pause {
	list := []*Pause{}
	for key, e := range ps.All() {
		if s := pausedBy(key, e); s != nil {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *Pause) int { return cmp.Compare(a.Site, b.Site) })
	return list
}
