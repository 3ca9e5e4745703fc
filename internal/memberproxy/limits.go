package memberproxy

import "fmt"

// RequestLimits bound the requests under way at a hub. Each may have the hub hold 64 KiB of unread data.
type RequestLimits struct {
	PerUser    int // of one user at one cluster
	PerUserAll int // of one user at all clusters
	All        int // of all users
}

// DefaultLimits of a hub.
var DefaultLimits = RequestLimits{PerUser: 500, PerUserAll: 2000, All: 4000}

// ValidateLimits returns an error where a limit lets nothing pass, or more than one that holds besides.
func (l RequestLimits) ValidateLimits() error {
	if 1 <= l.PerUser && l.PerUser <= l.PerUserAll && l.PerUserAll <= l.All {
		return nil
	}
	return fmt.Errorf("--proxy-requests-per-cluster is %d, --proxy-requests-per-user %d, --proxy-requests %d: the first is 1 at least, and none is more than the next", l.PerUser, l.PerUserAll, l.All)
}
