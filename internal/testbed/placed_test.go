package testbed

import (
	"encoding/json"
	"strings"
)

// Replicas returns the configured number of copies of each stream.
func (c *cluster) Replicas() map[string]int {
	c.t.Helper()
	list, err := c.streams()
	if err != nil {
		c.t.Fatal(err)
	}
	replicas := map[string]int{}
	for _, s := range list {
		replicas[s.Config.Name] = s.Config.Replicas
	}
	return replicas
}

// Leader returns the server that leads a stream.
func (c *cluster) Leader(name string) *Server {
	c.t.Helper()
	var leader *Server
	c.fleet.Eventually("stream "+name+" has a leader", func() bool {
		list, err := c.streams()
		for _, s := range list {
			for _, server := range c.servers {
				if err == nil && s.Config.Name == name && s.Cluster != nil && s.Cluster.Leader == server.Name {
					leader = server
				}
			}
		}
		return leader != nil
	})
	return leader
}

// EnrolledBy returns the provisioner that first enrolled a node, "" for the fleet's first.
func (c *cluster) EnrolledBy(identity string) string {
	f := c.fleet
	f.t.Helper()
	for line := range strings.Lines(f.Log()) {
		var said struct{ Msg, Node, Provisioner string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "node enrolled" && said.Node == identity {
			return said.Provisioner
		}
	}
	f.t.Errorf("no log line says that %s was enrolled", identity)
	return ""
}
