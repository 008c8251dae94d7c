package httpapi

// Hurry has the client wait a fifth as long for who says nothing.
func (c *Client) Hurry() *Client {
	c.quiet /= 5
	return c
}
