package puppet

import "net/http"

// statusRoutes are the calls below /status/v1.
func (s *Server) statusRoutes() []route {
	running := func(w http.ResponseWriter, _ *request) { text(w, http.StatusOK, "running") }
	return []route{
		{http.MethodGet, "/status/v1/simple", anyone, 0, running},
		{http.MethodGet, "/status/v1/simple/", anyone, 0, running},
	}
}
