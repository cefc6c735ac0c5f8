package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/varvedb/varve/http/admin"
	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/embedded"
	"github.com/varvedb/varve/ops/settings"
	"github.com/varvedb/varve/wiring"
)

// inspection is where metadata is read from: the admin listener of a running node, else the database itself.
type inspection struct {
	config wiring.Config
	file   string // of the node's configuration; "" for none
	admin  string
	rows   layer.InspectOptions
	asJSON bool
	follow bool
}

func newInspect() *cobra.Command {
	in := &inspection{config: wiring.DefaultConfig()}
	c := &cobra.Command{
		Use:   "inspect",
		Short: "Show the rows of the metadata, decoded",
		Long: `Show the rows of the metadata, decoded. With --cluster-file they are read from FoundationDB. Otherwise a node that serves the data directory is
asked by its admin listener; when none runs, the embedded engine is opened. Settings come from flags, environment and --config, as those of serve do.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if in.rows.Limit < 0 {
				return &usageError{fmt.Errorf("--limit is %d, want at least 0", in.rows.Limit)}
			}
			if in.follow {
				return in.followLog(c)
			}
			return in.show(c)
		},
	}
	if err := settings.Bind(c.PersistentFlags(), &in.config); err != nil {
		panic(err) // a tag that does not parse, as in serve
	}
	hideAllBut(c, "data-dir", "cluster", "subspace", "cluster-file", "fdb-library")
	f := c.PersistentFlags()
	f.StringVar(&in.file, "config", fromEnv("config", ""), "configuration file of the node")
	f.StringVar(&in.admin, "admin", fromEnv("admin", ""), "host:port of a node's admin listener to ask")
	f.BoolVar(&in.asJSON, "json", false, "a JSON object a line")
	rows := c.Flags()
	rows.StringVar(&in.rows.Keyspace, "keyspace", "", "only this keyspace, such as stream or wal")
	rows.Int64Var(&in.rows.Stream, "stream", 0, "only rows of this stream id")
	rows.Int64Var(&in.rows.Node, "node", 0, "only rows of this node id")
	rows.BoolVar(&in.follow, "follow", false, "show what is appended to the metadata log, until interrupted")
	rows.IntVar(&in.rows.Limit, "limit", 0, "no more rows than this; 0 for all")
	c.AddCommand(&cobra.Command{
		Use: "check", Short: "Check the invariants of the metadata and list what is wrong", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return in.check(c) },
	})
	return c
}

// hideAllBut keeps the help to the flags that matter here; the others stay usable, since environment and file may set them.
func hideAllBut(c *cobra.Command, shown ...string) {
	keep := map[string]bool{}
	for _, name := range shown {
		keep[name] = true
	}
	c.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = !keep[f.Name] })
}

// source gives the metadata: ask is set when a node answers for it, otherwise store is open.
func (in *inspection) source(c *cobra.Command) (ask string, store *layer.Store, done func(), err error) {
	if err := settings.Load(c.Flags(), in.file); err != nil {
		return "", nil, nil, &usageError{err}
	}
	if in.admin != "" {
		return in.admin, nil, func() {}, nil
	}
	ctx := c.Context()
	if in.config.FDB.ClusterFile == "" && in.config.Process.MetadataSocket == "" {
		if _, err := os.Stat(wiring.MetadataDir(in.config.Process.DataDir)); err != nil {
			// A node of varve dev has its metadata elsewhere, and can be asked.
			if local, readErr := wiring.ReadAddresses(in.config.Process.DataDir); readErr == nil && local.Admin != "" {
				return local.Admin, nil, func() {}, nil
			}
			return "", nil, nil, fmt.Errorf("there is no metadata in data directory %s: %w", in.config.Process.DataDir, err)
		}
	}
	warnings := slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	db, err := wiring.OpenDatabase(ctx, in.config, warnings)
	if errors.Is(err, embedded.ErrInUse) {
		local, readErr := wiring.ReadAddresses(in.config.Process.DataDir)
		if readErr != nil || local.Admin == "" {
			return "", nil, nil, fmt.Errorf("%w; give the --admin address of the node that serves it", err)
		}
		return local.Admin, nil, func() {}, nil
	}
	if err != nil {
		return "", nil, nil, err
	}
	if err := wiring.AwaitDatabase(ctx, db, warnings); err != nil {
		return "", nil, nil, errors.Join(err, db.Close())
	}
	store, err = wiring.NewLayer(in.config, db)
	return "", store, func() { db.Close() }, err
}

func (in *inspection) show(c *cobra.Command) error {
	ask, store, done, err := in.source(c)
	if err != nil {
		return err
	}
	defer done()
	out := bufio.NewWriter(c.OutOrStdout())
	defer out.Flush()
	table := tabwriter.NewWriter(out, 2, 8, 2, ' ', 0)
	defer table.Flush()
	each := func(row admin.InspectedRow) error {
		if in.asJSON {
			return json.NewEncoder(out).Encode(row)
		}
		value := string(row.Value) + row.Text
		if row.Error != "" {
			value = "UNREADABLE: " + row.Error
		}
		_, err := fmt.Fprintf(table, "%s\t%s\t%s\n", row.Keyspace, row.Key, value)
		return err
	}
	if store != nil {
		err := store.Inspect(c.Context(), in.rows, func(r layer.InspectRow) error { return each(admin.NewInspectedRow(r)) })
		if errors.Is(err, layer.ErrInvalid) {
			return &usageError{err}
		}
		return err
	}
	query := url.Values{"keyspace": {in.rows.Keyspace}, "stream": {strconv.FormatInt(in.rows.Stream, 10)},
		"node": {strconv.FormatInt(in.rows.Node, 10)}, "limit": {strconv.Itoa(in.rows.Limit)}}
	return lines(c.Context(), "http://"+ask+"/admin/inspect?"+query.Encode(), each)
}

// followLog shows records of the metadata log as they come.
func (in *inspection) followLog(c *cobra.Command) error {
	ask, store, done, err := in.source(c)
	if err != nil {
		return err
	}
	defer done()
	each := func(line admin.LogLine) error {
		if in.asJSON {
			return json.NewEncoder(c.OutOrStdout()).Encode(line)
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "%s  %s by %s\n", line.Versionstamp, line.Command, line.By)
		for _, change := range line.Changes {
			if err == nil {
				_, err = fmt.Fprintf(c.OutOrStdout(), "    %s %d%s %s\n", change.Keyspace, change.ID, change.Name, change.Row)
			}
		}
		return err
	}
	switch {
	case store != nil && in.config.FDB.ClusterFile == "":
		return fmt.Errorf("--follow: no node runs on data directory %s, so nothing is appended to its metadata log", in.config.Process.DataDir)
	case store != nil:
		return admin.FollowLog(c.Context(), store, each)
	}
	err = lines(c.Context(), "http://"+ask+"/admin/inspect/follow", each)
	if c.Context().Err() != nil {
		return nil
	}
	return err
}

func (in *inspection) check(c *cobra.Command) error {
	ask, store, done, err := in.source(c)
	if err != nil {
		return err
	}
	defer done()
	found := 0
	each := func(p admin.Problem) error {
		found++
		if in.asJSON {
			return json.NewEncoder(c.OutOrStdout()).Encode(p)
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "%s\t%s\t%s\n", p.Kind, p.Key, p.Detail)
		return err
	}
	if store != nil {
		var failed error
		err = store.Check(c.Context(), func(p layer.Problem) { failed = errors.Join(failed, each(admin.Problem(p))) })
		err = errors.Join(err, failed)
	} else {
		err = lines(c.Context(), "http://"+ask+"/admin/inspect/check", each)
	}
	switch {
	case err != nil:
		return err
	case found > 0:
		return fmt.Errorf("%d invariants are broken", found)
	case !in.asJSON:
		fmt.Fprintln(c.OutOrStdout(), "nothing is wrong")
	}
	return nil
}

// lines reads an answer of one JSON value a line.
func lines[T any](ctx context.Context, address string, each func(T) error) error {
	answer, err := call(ctx, http.MethodGet, address, nil, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	decoder := json.NewDecoder(answer.Body)
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var failed struct{ Error, Message string }
		if json.Unmarshal(raw, &failed) == nil && failed.Error == "incomplete" {
			return errors.New(failed.Message)
		}
		var value T
		if err := json.Unmarshal(raw, &value); err != nil {
			return err
		}
		if err := each(value); err != nil {
			return err
		}
	}
}
