package puppet

// Runs keeps the last run of each node.
type Runs any
