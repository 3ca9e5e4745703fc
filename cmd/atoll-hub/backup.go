package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/apiserver/backup"
	"atoll.dev/atoll/internal/atoll"
)

func newBackupCommand() *cobra.Command {
	var keysDir, recipientsFile string
	var recipients []string
	cmd := newBackupFileCommand("backup --data-dir DIR --file FILE [--recipient age1...]", "Save a hub, running or not, to one file",
		`Save a hub, running or not, to one file: a snapshot of its etcd and its keys. The
file is as secret as the hub itself. With an external etcd the file holds the keys
alone; save the etcd with its own tools at the same time.

With recipients the file is encrypted by age (age-encryption.org) while it is written, and
no plain copy touches the disk. Each recipient's identity restores it.

With --file - it goes to standard output, by way of a file in $TMPDIR:

  kubectl exec -n atoll atoll-hub-0 -- atoll-hub backup --data-dir /var/lib/atoll/hub --file - \
    --recipient age1... > hub.backup.age`,
		func(cmd *cobra.Command, o backup.Options) (err error) {
			o.KeysDir = keysDir
			o.Recipients, err = backup.ParseRecipients(recipients, changedFlagValue(cmd, "recipients-file", recipientsFile), cmd.InOrStdin())
			if err != nil {
				return err
			}
			if o.File == "-" {
				return saveToStdout(cmd, o)
			}
			r, err := backup.SaveBackup(cmd.Context(), o)
			return printBackupReport(cmd.OutOrStdout(), "saved "+o.DataDir+" to "+o.File, r, err)
		})
	cmd.Flags().StringVar(&keysDir, "keys-dir", "", "where the hub has its keys, if not in DIR/keys")
	cmd.Flags().StringArrayVar(&recipients, "recipient", nil, "encrypt to this public key: age1..., or the line of an SSH key (ssh-ed25519, ssh-rsa); may be repeated")
	cmd.Flags().StringVar(&recipientsFile, "recipients-file", "", "file with recipients, one a line, - for standard input")
	return cmd
}

// changedFlagValue returns the value of a flag that names a file, also an empty one, or nil where the flag
// is not given.
func changedFlagValue(cmd *cobra.Command, flag, value string) *string {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return &value
}

// saveToStdout saves to standard output, where nothing else goes then.
func saveToStdout(cmd *cobra.Command, o backup.Options) error {
	dir, err := os.MkdirTemp("", "atoll-hub-backup-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.File = filepath.Join(dir, "backup")
	r, err := backup.SaveBackup(cmd.Context(), o)
	if err != nil {
		return err
	}
	f, err := os.Open(o.File)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(cmd.OutOrStdout(), f)
	return printBackupReport(cmd.ErrOrStderr(), "saved "+o.DataDir, r, err)
}

func newRestoreCommand() *cobra.Command {
	var identityFile string
	cmd := newBackupFileCommand("restore --data-dir DIR --file FILE [--identity-file FILE]", "Make a hub's data directory from a backup",
		`Make a hub's data directory, which must be absent or empty, from a backup. The hub
then starts holding: it serves and observes, and orders nothing of any member until
`+"`atoll restore accept --hub|--members`"+` decides which side counts where they differ.

A backup that is encrypted by age needs the identity of one of its recipients. Nothing is
restored before the whole file is decrypted once and verified:

  age --decrypt identity.age | atoll-hub restore --data-dir DIR --file hub.backup.age --identity-file -`,
		func(cmd *cobra.Command, o backup.Options) (err error) {
			if file := changedFlagValue(cmd, "identity-file", identityFile); file != nil {
				if o.Identities, err = backup.ParseIdentities(*file, cmd.InOrStdin()); err != nil {
					return err
				}
			}
			r, err := backup.RestoreDataDir(cmd.Context(), o)
			return printBackupReport(cmd.OutOrStdout(), "restored "+o.DataDir+" from "+o.File, r, err)
		})
	cmd.Flags().StringVar(&identityFile, "identity-file", "", "file with age identities (AGE-SECRET-KEY-1...) or one SSH private key, without a passphrase, - for standard input")
	return cmd
}

func printBackupReport(w io.Writer, what string, r *backup.Report, err error) error {
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n  made    %s by Atoll %s\n  sha256  %s\n", what, r.Time.Format(time.RFC3339), r.Version, r.Checksum)
	if r.Encrypted {
		fmt.Fprintln(w, "  age     encrypted")
	}
	if r.Note != "" {
		fmt.Fprintf(w, "  note    %s\n", r.Note)
	}
	return nil
}

func newBackupFileCommand(use, short, long string, run func(*cobra.Command, backup.Options) error) *cobra.Command {
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
	addDataDirFlag(cmd, &o.DataDir)
	cmd.Flags().StringVar(&o.File, "file", "", "the backup (required)")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err)
	}
	return cmd
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), atoll.Version) },
	}
}
