// Package controller chains the starts of a hub, holds a restored hub, and holds the removals that
// members recorded and the store did not.
//
// Contract: nothing is deleted, and no template or row is made. Run and RunRecall each run once,
// until their context ends. Methods that begin with On only queue, and may be called concurrently.
// Each of several hubs runs Run, and the leader alone RunRecall.
package controller
