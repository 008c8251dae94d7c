package puppet

// runRoutes are the calls of a node's run.
func (s *Server) runRoutes() []route { return nil }
