package fleet

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// CountHealthy counts, by Bundle UID, the rows that are Ready in their members at this
// moment, reported or not.
func (c *SimulatorClient) CountHealthy(ctx context.Context) (map[string]int, error) {
	var rows map[string]int
	err := c.callSimulator(ctx, http.MethodGet, "/healthy", nil, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&rows)
	})
	return rows, err
}

func (s *simulator) countHealthyByBundle(context.Context) (map[string]int, error) {
	rows := map[string]int{}
	for _, a := range s.agents {
		a.mu.Lock()
		for i := range a.holdings {
			if h := &a.holdings[i]; h.mood == moodReady && !h.shape.isRemoval {
				rows[h.shape.bundle]++
			}
		}
		a.mu.Unlock()
	}
	return rows, nil
}

func (all processGroup) countHealthyByBundle(ctx context.Context) (map[string]int, error) {
	sum := map[string]int{}
	for _, c := range all {
		rows, err := c.CountHealthy(ctx)
		if err != nil {
			return nil, err
		}
		for bundle, n := range rows {
			sum[bundle] += n
		}
	}
	return sum, nil
}
