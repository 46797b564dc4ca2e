/** Marks, geometry and shades that static pages draw as well: one file for both (docs/decisions/0045). */

import parts from "../../src/vesalius/report/templates/parts.json";

export default parts;
