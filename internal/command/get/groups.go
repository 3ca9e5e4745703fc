package get

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

// clusterStates are the states of clusters, as the hub and the console name them.
var clusterStates = []string{"NotReady", "Away", "Joining", "Removing", "Unknown", "Ready"}

// groupedClusters is the answer of atoll.FleetCountsPath.
type groupedClusters struct {
	By           string         `json:"by"`
	Matching     int            `json:"matching"`
	States       map[string]int `json:"states"`
	Groups       []clusterGroup `json:"groups"`
	MoreGroups   int            `json:"moreGroups,omitempty"`
	MoreClusters int            `json:"moreClusters,omitempty"`
}

// clusterGroup is the clusters with one value of a property.
type clusterGroup struct {
	Value    string         `json:"value"`
	Clusters int            `json:"clusters"`
	States   map[string]int `json:"states"`
}

// maxGroups is the largest number of groups that a hub answers with.
const maxGroups = 1000

// printGroups prints how many clusters are in each state, by the values of a property. The hub counts them.
func (o *getOptions) printGroups(cmd *cobra.Command, c *client.Connection, by, selector string) error {
	if o.format.IsFormat("wide") {
		return errors.New("counts have no wide format; leave -o wide or --group-by out")
	}
	request := c.REST.Get().AbsPath(atoll.FleetCountsPath).Param("by", by).Param("limit", strconv.Itoa(maxGroups))
	if selector != "" {
		request = request.Param("labelSelector", selector)
	}
	var counts groupedClusters
	if err := c.DecodeAnswer(request.Do(cmd.Context()), "no counts of clusters", &counts); err != nil {
		return err
	}
	if done, err := o.format.PrintStructured(cmd.OutOrStdout(), counts); done {
		return err
	}
	return writeGroups(cmd.OutOrStdout(), counts)
}

// writeGroups writes a line for each group, and one for all clusters.
func writeGroups(out io.Writer, counts groupedClusters) error {
	headings := []string{strings.ToUpper(counts.By), "CLUSTERS"}
	for _, state := range clusterStates {
		headings = append(headings, strings.ToUpper(state))
	}
	table := output.NewTable(out, headings...)
	addRow := func(title string, clusters int, states map[string]int) {
		cells := []string{title, strconv.Itoa(clusters)}
		for _, state := range clusterStates {
			cells = append(cells, strconv.Itoa(states[state]))
		}
		table.AddRow(cells...)
	}
	for _, g := range counts.Groups {
		title := g.Value
		if title == "" {
			title = "(no value)"
		}
		addRow(title, g.Clusters, g.States)
	}
	if counts.MoreGroups > 0 {
		table.AddRow(fmt.Sprintf("(%d more)", counts.MoreGroups), strconv.Itoa(counts.MoreClusters))
	}
	addRow("(all)", counts.Matching, counts.States)
	return table.Flush()
}
