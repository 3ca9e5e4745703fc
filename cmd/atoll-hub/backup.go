package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/apiserver/backup"
	"atoll.dev/atoll/internal/atoll"
)

func newBackupCommand() *cobra.Command {
	return newCopyCommand("backup --data-dir DIR --file FILE", "Save a hub, running or not, to one file",
		`Save a hub, running or not, to one file: a snapshot of its etcd and its keys. The
file is as secret as the hub itself. With an external etcd the file holds the keys
alone; save the etcd with its own tools at the same time.`,
		func(cmd *cobra.Command, o backup.Options) error {
			r, err := backup.Save(cmd.Context(), o)
			return tell(cmd, "saved "+o.DataDir+" to "+o.File, r, err)
		})
}

func newRestoreCommand() *cobra.Command {
	return newCopyCommand("restore --data-dir DIR --file FILE", "Make a hub's data directory from a backup",
		`Make a hub's data directory, which must be absent or empty, from a backup. The hub
then starts holding: it serves and observes, and orders nothing of any member until
`+"`atoll restore accept --hub|--members`"+` says whose word counts where they differ.`,
		func(cmd *cobra.Command, o backup.Options) error {
			r, err := backup.Restore(cmd.Context(), o)
			return tell(cmd, "restored "+o.DataDir+" from "+o.File, r, err)
		})
}

func tell(cmd *cobra.Command, what string, r *backup.Report, err error) error {
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n  made    %s by Atoll %s\n  sha256  %s\n", what, r.Time.Format(time.RFC3339), r.Version, r.Checksum)
	if r.Note != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "  note    %s\n", r.Note)
	}
	return nil
}

func newCopyCommand(use, short, long string, run func(*cobra.Command, backup.Options) error) *cobra.Command {
	o := backup.Options{Version: atoll.Version}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Logger, err = newLogger("text", false); err != nil {
				return err
			}
			return run(cmd, o)
		},
	}
	cmd.Flags().StringVar(&o.DataDir, "data-dir", "", "the hub's data directory (required)")
	cmd.Flags().StringVar(&o.File, "file", "", "the backup (required)")
	for _, name := range []string{"data-dir", "file"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	return cmd
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), atoll.Version) },
	}
}
