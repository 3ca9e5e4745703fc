package atoll

import "time"

// Upkeep is what a hub may spend on telling what clusters do by themselves: health that
// turns, counts that move. It has a bound that neither the number of rows nor how often
// they flap can raise, so that people and their orders find the API server free. What
// an order brings about (the first Ready of a generation, a removal) waits for none of
// it.
//
// From a turn in a member to the Bundle's status it is less than ten seconds while 500
// slices of 1,000-row Bundles flap, since each stage takes at most: 0.1 s the agent, 5 s
// the gateway (500 slices at UpkeepSlices a second, or UpkeepSliceEvery), 0.3 s a write,
// 0.25 s until a change is looked at, 2 s UpkeepStatusEvery, 0.3 s a write: 8 s. With
// more slices, only the gateway's stage grows.
const (
	// UpkeepSlices are the writes of TargetSlices a second, of one hub. One of 200 rows
	// costs the API server about 4 ms of CPU: so many are 0.4 of a core.
	UpkeepSlices = 100
	// UpkeepStatuses are the writes of statuses of Bundles and templates a second, of
	// the hub that leads. One costs about 3 ms.
	UpkeepStatuses = 50
	// UpkeepClusters are the writes of Clusters' statuses a second of which only what their
	// pods ask for has changed, of one hub. One costs about 2 ms.
	UpkeepClusters = 20
	// UpkeepSliceEvery is how often one slice is written at most, after UpkeepBurst
	// times.
	UpkeepSliceEvery = 4 * time.Second
	UpkeepBurst      = 3
	// UpkeepStatusEvery is how often the status of one Bundle or template is written at
	// most.
	UpkeepStatusEvery = 2 * time.Second
)
