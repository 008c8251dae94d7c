package httpapi

import (
	"fmt"
	"net/http"
	"strconv"

	"muster/provisioner/events"
)

// attemptsShown is how many are listed unless a request says otherwise.
const attemptsShown = 20

// Attempts are the failed attempts at this provisioner since it started, of those
// with the most.
type Attempts struct {
	Sources []events.FailedAttempts `json:"sources"`
	Tokens  []events.FailedAttempts `json:"tokens"`
}

// attemptRoutes list the sources of most failures.
func attemptRoutes(s *Server) {
	get(s, viewer, "/v1/attempts", func(r *http.Request) (*Attempts, error) {
		v, err := parameters(r, "top")
		if err != nil {
			return nil, badRequest(err)
		}
		n := attemptsShown
		if top := v.Get("top"); top != "" {
			if n, err = strconv.Atoi(top); err != nil || n < 1 {
				return nil, badRequest(fmt.Errorf("top: %.64q, want 1 or more", top))
			}
		}
		return &Attempts{Sources: s.cfg.Attempts.Sources(n), Tokens: s.cfg.Attempts.Tokens(n)}, nil
	})
}
