package apply

import (
	"context"
	"sync"
	"time"

	"atoll.dev/atoll/internal/agent/member"
)

const (
	// accessAge is how long an answer about a right counts. A right that was granted or revoked counts after it.
	accessAge = 10 * time.Second
	// maxAccessAnswers bounds the answers that are kept.
	maxAccessAnswers = 4096
)

// accessCache keeps answers about rights of ServiceAccounts for a short time. Errors are not kept. It is safe for
// concurrent use.
type accessCache struct {
	review  func(context.Context, member.Access) (bool, error)
	metrics *Metrics
	age     time.Duration

	mu      sync.Mutex
	answers map[member.Access]accessAnswer
}

type accessAnswer struct {
	allowed bool
	at      time.Time
}

func newAccessCache(client *member.Client, metrics *Metrics) *accessCache {
	return &accessCache{review: client.ReviewAccess, metrics: metrics, age: accessAge, answers: map[member.Access]accessAnswer{}}
}

// reviewAccess reports whether the member's API allows the access, from an answer of the last moments or a new one.
func (c *accessCache) reviewAccess(ctx context.Context, a member.Access) (bool, error) {
	asked := time.Now()
	c.mu.Lock()
	known, ok := c.answers[a]
	c.mu.Unlock()
	if ok && asked.Sub(known.at) < c.age {
		c.metrics.countAccessReview("cached")
		return known.allowed, nil
	}
	allowed, err := c.review(ctx, a)
	switch {
	case err != nil:
		c.metrics.countAccessReview("error")
		return false, err
	case allowed:
		c.metrics.countAccessReview("allowed")
	default:
		c.metrics.countAccessReview("denied")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) >= maxAccessAnswers {
		c.dropOldAnswers(asked)
	}
	c.answers[a] = accessAnswer{allowed, asked}
	return allowed, nil
}

// dropOldAnswers drops the answers that no longer count, or all where that is none. The caller holds mu.
func (c *accessCache) dropOldAnswers(now time.Time) {
	for a, answer := range c.answers {
		if now.Sub(answer.at) >= c.age {
			delete(c.answers, a)
		}
	}
	if len(c.answers) >= maxAccessAnswers {
		clear(c.answers)
	}
}
