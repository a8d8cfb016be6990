// The type of a dashboard that this collection writes: Grafana's schema, with the options of each kind of panel.

import type {
  Dashboard,
  DataQuery,
  DataTransformerConfig,
  FieldConfig,
  FieldConfigSource,
  GraphFieldConfig,
  Panel,
  RowPanel,
  TableFieldOptions,
} from "@grafana/schema";
import type { Options as BarGaugeOptions } from "@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen";
import type { Options as StatOptions } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type { Options as TableOptions } from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen";
import type { Options as TimeSeriesOptions } from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

// JSON has the values of enumerations, not their names.
type Json<T> = T extends string
  ? `${T}`
  : T extends (infer Element)[]
    ? Json<Element>[]
    : T extends object
      ? { [Name in keyof T]: Json<T[Name]> }
      : T;

// A query of the data source Prometheus, whose type the schema does not have (packages/grafana-prometheus/src/dataquery.ts).
interface PrometheusQuery extends DataQuery {
  editorMode: "code";
  expr: string;
  format: "table" | "time_series";
  instant: boolean;
  interval: string;
  legendFormat: string;
  range: boolean;
}

interface Organize extends DataTransformerConfig {
  id: "organize";
  options: {
    excludeByName: Record<string, boolean>;
    indexByName: Record<string, number>;
    renameByName: Record<string, string>;
  };
}

interface Merge extends DataTransformerConfig {
  id: "merge";
  options: Record<string, never>;
}

type Checked = "custom" | "defaults" | "fieldConfig" | "options" | "targets" | "transformations" | "type";

interface Kind<Type extends string, Options, Custom> extends Omit<Panel, Checked> {
  type: Type;
  options: Options;
  fieldConfig: Omit<FieldConfigSource, "defaults"> & { defaults: Omit<FieldConfig, "custom"> & { custom: Custom } };
  targets: PrometheusQuery[];
  transformations?: (Merge | Organize)[];
}

type Panels =
  | RowPanel
  | Kind<"bargauge", BarGaugeOptions, Record<string, never>>
  | Kind<"stat", StatOptions, Record<string, never>>
  | Kind<"table", TableOptions, TableFieldOptions>
  | Kind<"timeseries", TimeSeriesOptions, GraphFieldConfig>;

export type Board = Json<Omit<Dashboard, "panels"> & { panels: Panels[] }>;
