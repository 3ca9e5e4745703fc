package fleet

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// Healthy counts the rows of each Bundle, by UID, that are Ready in their members at
// this moment, whether or not that is reported.
func (c *Control) Healthy(ctx context.Context) (map[string]int, error) {
	var rows map[string]int
	err := c.call(ctx, http.MethodGet, "/healthy", nil, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&rows)
	})
	return rows, err
}

func (s *sim) healthy(context.Context) (map[string]int, error) {
	rows := map[string]int{}
	for _, a := range s.agents {
		a.mu.Lock()
		for i := range a.holdings {
			if h := &a.holdings[i]; h.mood == moodReady && !h.shape.remove {
				rows[h.shape.bundle]++
			}
		}
		a.mu.Unlock()
	}
	return rows, nil
}

func (all crews) healthy(ctx context.Context) (map[string]int, error) {
	sum := map[string]int{}
	for _, c := range all {
		rows, err := c.Healthy(ctx)
		if err != nil {
			return nil, err
		}
		for bundle, n := range rows {
			sum[bundle] += n
		}
	}
	return sum, nil
}
