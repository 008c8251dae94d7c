package puppet

import "net/http"

// Foreman returns the handler of /puppet/ca/ on the HTTPS API.
func (s *Server) Foreman() http.Handler { return http.NotFoundHandler() }
