package httpapi

// Write answers with a problem.
var Write = (*Problem).write

// Routes returns the patterns of all routes.
func (s *Server) Routes() (all []string) {
	for pattern := range s.routes {
		all = append(all, pattern)
	}
	return all
}

// Access returns the role that a route needs, and whether it changes something.
func (s *Server) Access(pattern string) (role string, changes bool) {
	need := s.routes[pattern]
	return string(need.role), need.changes
}

// ForForeman reports whether the role foreman has access to a route.
func (s *Server) ForForeman(pattern string) bool { return s.routes[pattern].foreman }
