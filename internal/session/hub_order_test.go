package session_test

import (
	"fmt"
	"slices"
	"testing"

	"atoll.dev/atoll/internal/session"
)

func TestAgentsSpreadOverHubs(t *testing.T) {
	hubs := []string{"127.0.0.1:6444", "127.0.0.1:6445", "127.0.0.1:6446"}
	orders := map[string]int{}
	for i := range 6000 {
		name := fmt.Sprintf("sim-%06d", i)
		order := session.OrderHubs(name, hubs)
		if !slices.Equal(order, session.OrderHubs(name, []string{hubs[2], hubs[0], hubs[1]})) {
			t.Fatalf("%s: the order depends on how the hubs are listed", name)
		}
		orders[fmt.Sprint(order)]++
	}
	if len(orders) != 6 {
		t.Fatalf("%d orders of three hubs", len(orders))
	}
	for order, n := range orders {
		if n < 850 || n > 1150 {
			t.Errorf("%d of 6000 agents dial %s", n, order)
		}
	}
}
