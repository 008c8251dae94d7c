// Package server is the agent on a node. It decides whether the node has to be provisioned, enrolls it with the token
// on its image, and puts certificate and configuration on disk, all or nothing. Then it stays connected to the fleet
// by mutual TLS, reports that the node is alive and takes commands.
//
// A [Server] runs one mode after the other: an enroller is provisioning mode, a member normal mode with reports,
// confirmation, renewal and commands. Both share an agent: the state that decides the mode, the sets of files, the
// clock, accepted commands (package orders), connections (package link) and logged problems (problems).
//
// # Trust
//
// The node does not verify its token; the provisioner does. It takes the brokers and the expected authority from it.
// It accepts a reply that repeats the request's random id and has a certificate for this node's key and name, under
// the authority that the token pins (package trust). Without a pin, plain mode is as secure as Choria and no more.
//
// The private key is created here with mode 0600 and never leaves the node.
//
// # Files
//
// All files of a set change by one rename(2): see package files. Beside the sets are .lock, which excludes a second
// agent, .clock, the latest time saved, and .orders, the accepted commands.
package server
