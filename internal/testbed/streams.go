package testbed

import (
	"encoding/json"
	"strings"
)

// streams looks at the streams that store what nodes publish. JetStream would
// send its acknowledgement wherever a node says, within the provisioners'
// account, so such a stream must give none.
func (c *checker) streams() {
	conn, err := c.f.daemon.Connect("check")
	if err != nil {
		c.bad("%v", err)
		return
	}
	defer conn.Close()
	m, err := conn.RequestWithContext(c.f.Context(), "$JS.API.STREAM.LIST", nil)
	if err != nil {
		c.bad("list streams: %v", err)
		return
	}
	var list struct {
		Streams []struct {
			Config struct {
				Name     string   `json:"name"`
				Subjects []string `json:"subjects"`
				NoAck    bool     `json:"no_ack"`
			} `json:"config"`
		} `json:"streams"`
	}
	if err := json.Unmarshal(m.Data, &list); err != nil || len(list.Streams) == 0 {
		c.bad("list streams: %v, %s", err, m.Data)
	}
	for _, s := range list.Streams {
		for _, subject := range s.Config.Subjects {
			if strings.HasPrefix(subject, "muster.v1.") && !s.Config.NoAck {
				c.bad("stream %s acknowledges what nodes publish to %s", s.Config.Name, subject)
			}
		}
	}
}
