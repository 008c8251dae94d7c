package puppet

// authorityRoutes are the calls below /puppet-ca/v1.
func (s *Server) authorityRoutes() []route { return nil }
